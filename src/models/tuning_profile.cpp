#include <corbel/models/tuning_profile.hpp>

#include <corbel/impl/models/tuning_profile.ipp>
