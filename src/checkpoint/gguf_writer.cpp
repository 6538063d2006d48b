// The compiled form of checkpoint/gguf_writer.hpp.
#include <corbel/checkpoint/gguf_writer.hpp>
#include <corbel/impl/checkpoint/gguf_writer.ipp>
