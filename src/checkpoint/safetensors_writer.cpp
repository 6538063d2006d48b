// The compiled form of checkpoint/safetensors_writer.hpp.
#include <corbel/checkpoint/safetensors_writer.hpp>
#include <corbel/impl/checkpoint/safetensors_writer.ipp>
