// Compiled form of text/piece_automaton.hpp.
#include <corbel/impl/text/piece_automaton.ipp>
#include <corbel/text/piece_automaton.hpp>
