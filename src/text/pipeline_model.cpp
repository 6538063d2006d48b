// Compiled form of text/pipeline_model.hpp.
#include <corbel/impl/text/pipeline_gguf.ipp>
#include <corbel/impl/text/pipeline_model.ipp>
#include <corbel/impl/text/tokenizer_json.ipp>
#include <corbel/impl/text/tokenizer_to_gguf.ipp>
#include <corbel/text/pipeline_model.hpp>
