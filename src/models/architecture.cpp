#include <corbel/models/architecture.hpp>

#include <corbel/impl/models/architecture.ipp>
