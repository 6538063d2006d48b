// AnyModel: a model on whichever of the registered backends is chosen at run time.
//
//   auto model = corbel::AnyModel::load("model.gguf", "cpu", context).value();
//   model.visit([&](const auto& typed) { ... });         // typed is a corbel::Model<B>
#pragma once

#include <corbel/backends.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/hal/registry.hpp>
#include <corbel/model.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

CORBEL_NAMESPACE_BEGIN

/// Names of the registered backends, best first.
inline constexpr const char* kBackendNames[] = {
#define CORBEL_X(name, Type) #name,
    CORBEL_BACKENDS(CORBEL_X)
#undef CORBEL_X
};

/// Calls function.template operator()<B>() for the registered backend of this name, which must return a Result;
/// kInvalidArgument lists the names otherwise.
template <class Function>
auto visit_backend(std::string_view name, Function&& function)
    -> decltype(function.template operator()<DefaultBackend>()) {
#define CORBEL_X(backend_name, Type) \
  if (name == #backend_name) return function.template operator()<Type>();
  CORBEL_BACKENDS(CORBEL_X)
#undef CORBEL_X
  std::string known;
  for (const char* backend : kBackendNames) known += std::string(known.empty() ? "" : ", ") + backend;
  return Status(Errc::kInvalidArgument, "backend \"" + std::string(name) + "\" is not known; there are " + known);
}

/// Copyable like Model; thread-safe.
class AnyModel {
 public:
  /// `backend` is a registered name; empty takes the first that can be made on this machine
  /// (where the context forces an instruction level: the first of all). Errors: kInvalidArgument,
  /// and those of Model::load.
  static Result<AnyModel> load(const std::string& path, std::string_view backend, const Context& context,
                               const LoadOptions& options = {}) {
    const Result<Checkpoint> checkpoint = Checkpoint::open(path, context, options.open);
    if (!checkpoint.ok()) return checkpoint.status();
    if (!backend.empty())
      return visit_backend(backend,
                           [&]<class B>() -> Result<AnyModel> { return load_as<B>(*checkpoint, context, options); });
    for (const char* name : kBackendNames) {
      Result<AnyModel> model = visit_backend(name, [&]<class B>() -> Result<AnyModel> {
        if (const Result<B> made = B::create(context); !made.ok()) return made.status();
        return load_as<B>(*checkpoint, context, options);
      });
      // A level that was asked for by name is not exchanged for another backend.
      const bool next = !model.ok() && model.status().code() == Errc::kUnsupported && !context.options().force_isa &&
                        name != kBackendNames[std::size(kBackendNames) - 1];
      if (!next) return model;
    }
    return Status(Errc::kInternal, "no backend is registered");
  }

  const char* backend_name() const noexcept { return name_; }
  /// function(const Model<B>&) for the B that was chosen; all instantiations must return the same type.
  template <class Function>
  auto visit(Function&& function) const {
#define CORBEL_X(backend_name, Type) \
  if (const auto& model = std::get<std::optional<Model<Type>>>(models_)) return function(*model);
    CORBEL_BACKENDS(CORBEL_X)
#undef CORBEL_X
    return function(*std::get<std::optional<Model<DefaultBackend>>>(models_));  // not reached: load() set one of them
  }

 private:
  template <class B>
  static Result<AnyModel> load_as(const Checkpoint& checkpoint, const Context& context, const LoadOptions& options) {
    CORBEL_ASSIGN_OR_RETURN(Model<B> model, Model<B>::load(checkpoint, context, options));
    AnyModel any;
    std::get<std::optional<Model<B>>>(any.models_) = std::move(model);
    any.name_ = B::kName;
    return any;
  }

#define CORBEL_X(backend_name, Type) , std::optional<Model<Type>>
  // The leading char takes the first comma of the list.
  std::tuple<char CORBEL_BACKENDS(CORBEL_X)> models_{};
#undef CORBEL_X
  const char* name_ = "";
};

CORBEL_NAMESPACE_END
