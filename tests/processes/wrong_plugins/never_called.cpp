#include <strait/plugin.h>

#include <cstdlib>

namespace {

// None of its code may run, so this ends the program that calls it.
void offer(strait::Extensions&) { std::abort(); }

}  // namespace

STRAIT_PLUGIN(offer)
