#include <corbel/impl/models/folder_layout.ipp>
#include <corbel/models/folder_layout.hpp>
