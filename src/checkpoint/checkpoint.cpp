// The compiled form of checkpoint/checkpoint.hpp.
#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/impl/checkpoint/checkpoint.ipp>
