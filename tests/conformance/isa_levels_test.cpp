// Says which ISA levels the conformance tests could not run on.
#include <support/backend_matrix.hpp>
#include <support/support.hpp>

namespace corbel_test {

TEST_CASE("conformance: levels") {
  int run = 0;
  for (const corbel::IsaLevel level : kAllLevels) {
    if (has_level(level)) {
      ++run;
    } else {
      skip(std::string("conformance at ") + corbel::isa_name(level), "this CPU lacks the level");
    }
  }
  CHECK(run >= 1);
}

}  // namespace corbel_test
