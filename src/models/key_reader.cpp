#include <corbel/models/key_reader.hpp>

#include <corbel/impl/models/key_reader.ipp>
