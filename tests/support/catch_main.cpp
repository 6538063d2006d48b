// main() of every Catch2 test program; compiled once, without sanitizers and warnings.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
