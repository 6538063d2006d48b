// The compiled form of checkpoint/metadata.hpp.
#include <corbel/checkpoint/metadata.hpp>
#include <corbel/impl/checkpoint/metadata.ipp>
