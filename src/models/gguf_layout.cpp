// The compiled form of models/gguf_layout.hpp.
#include <corbel/models/gguf_layout.hpp>
#include <corbel/impl/models/gguf_layout.ipp>
