// Compiled form of text/sentencepiece_bpe.hpp.
#include <corbel/impl/text/sentencepiece_bpe.ipp>
#include <corbel/text/sentencepiece_bpe.hpp>
