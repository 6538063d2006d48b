// The compiled form of checkpoint/tensor_info.hpp.
#include <corbel/checkpoint/tensor_info.hpp>
#include <corbel/impl/checkpoint/tensor_info.ipp>
