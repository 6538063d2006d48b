// The compiled form of checkpoint/bounded_reader.hpp.
#include <corbel/checkpoint/bounded_reader.hpp>
#include <corbel/impl/checkpoint/bounded_reader.ipp>
