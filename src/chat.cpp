// The compiled form of chat.hpp.
#include <corbel/chat.hpp>
#include <corbel/impl/chat.ipp>
