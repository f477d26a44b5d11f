#include "launcher/base/stop_signals.h"
#include "launcher/compute/strait_main.h"

namespace {

// Libraries take a tenth of a second to initialise before main() is called, and a stop in that time
// must not be silent. The loader calls what is in this section before that: it has no libraries.
void before_libraries(int /*argc*/, char** /*argv*/, char** /*environment*/) {
  strait::base::StopSignals::announce();
}
[[gnu::used, gnu::section(".preinit_array")]] const auto kBeforeLibraries = &before_libraries;

}  // namespace

int main(int argc, char** argv) { strait::end_program(strait::strait_main(argc, argv, nullptr)); }
