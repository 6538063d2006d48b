// Everything a user may include from the top level, in one line.
#pragma once

#include <corbel/any_model.hpp>
#include <corbel/backends.hpp>
#include <corbel/batch.hpp>
#include <corbel/build_info.hpp>
#include <corbel/chat.hpp>
#include <corbel/config.hpp>
#include <corbel/context.hpp>
#include <corbel/conversation.hpp>
#include <corbel/dtype.hpp>
#include <corbel/error.hpp>
#include <corbel/generate.hpp>
#include <corbel/kv_cache.hpp>
#include <corbel/model.hpp>
#include <corbel/plan.hpp>
#include <corbel/sampler.hpp>
#include <corbel/tokenizer.hpp>
#include <corbel/version.hpp>
