// The program that every way of embedding Corbel builds: the same source must print the same lines.
#pragma once

#include <string>

/// Loads a model, computes a prompt and a few tokens, and tells what came out: a line for each backend and level; "error: ..." where something
/// failed.
std::string consume(const char* model_path);

/// The version that consume's translation unit was compiled with.
const char* consumed_version();
