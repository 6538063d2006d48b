#include <corbel/models/folder_layout.hpp>

#include <corbel/impl/models/folder_layout.ipp>
