// Does what the library must not do; the symbol check must say so.
#include <cstdlib>

void rude(bool end_the_host) {
  if (end_the_host) std::abort();
}
