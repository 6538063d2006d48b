// The compiled form of checkpoint/json.hpp.
#include <corbel/checkpoint/json.hpp>
#include <corbel/impl/checkpoint/json.ipp>
