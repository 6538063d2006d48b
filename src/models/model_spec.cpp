#include <corbel/models/model_spec.hpp>

#include <corbel/impl/models/model_spec.ipp>
