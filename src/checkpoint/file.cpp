// The compiled form of checkpoint/file.hpp.
#include <corbel/checkpoint/file.hpp>
#include <corbel/impl/checkpoint/file.ipp>
