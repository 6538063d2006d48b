#include <corbel/graph/passes.hpp>

#include <corbel/impl/graph/passes.ipp>
