// The compiled form of models/quantization_config.hpp.
#include <corbel/models/quantization_config.hpp>

#include <corbel/impl/models/quantization_config.ipp>
