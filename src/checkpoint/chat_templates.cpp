// The compiled form of checkpoint/chat_templates.hpp.
#include <corbel/checkpoint/chat_templates.hpp>
#include <corbel/impl/checkpoint/chat_templates.ipp>
