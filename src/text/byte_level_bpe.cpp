// Compiled form of text/byte_level_bpe.hpp.
#include <corbel/impl/text/byte_level_bpe.ipp>
#include <corbel/text/byte_level_bpe.hpp>
