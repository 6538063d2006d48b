// Compiled form of conversation.hpp.
#include <corbel/conversation.hpp>

#include <corbel/impl/conversation.ipp>
