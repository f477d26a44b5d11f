#include "launcher/app/strait_main.h"
#include "launcher/control/stop_signals.h"

namespace {

void announce_stops() { strait::control::StopSignals::announce(); }

// Libraries take a tenth of a second to initialise before main() is called, and a stop in that time
// must not be silent. The loader calls what is in this section before that.
[[gnu::used, gnu::section(".preinit_array")]] void (*const kBeforeLibraries)() = announce_stops;

}  // namespace

int main(int argc, char** argv) { return strait::strait_main(argc, argv, nullptr); }
