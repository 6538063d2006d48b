// The compiled form of checkpoint/safetensors_reader.hpp.
#include <corbel/checkpoint/safetensors_reader.hpp>
#include <corbel/impl/checkpoint/safetensors_reader.ipp>
