// The compiled form of checkpoint/gguf_reader.hpp.
#include <corbel/checkpoint/gguf_reader.hpp>
#include <corbel/impl/checkpoint/gguf_reader.ipp>
