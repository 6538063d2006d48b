#include <corbel/hal/program.hpp>

#include <corbel/impl/hal/program.ipp>
