// The compiled form of models/quantized_linear.hpp.
#include <corbel/models/quantized_linear.hpp>

#include <corbel/impl/models/quantized_linear.ipp>
