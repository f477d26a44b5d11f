// Listed in a recipe's `plugins`, the library is in every process of a run. It offers no part.
#include "launcher/plugin/plugin.h"

STRAIT_PLUGIN([](strait::Extensions&) {})
