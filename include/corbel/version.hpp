// The only place where the version is written; CMake and the package files read it from here.
#pragma once

#define CORBEL_VERSION_MAJOR 0
#define CORBEL_VERSION_MINOR 1
#define CORBEL_VERSION_PATCH 0
