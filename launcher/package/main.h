#pragma once

// Installed as <strait/main.h>: strait as a program of your own, with parts linked in. Link
// strait::compute and strait::plugin.
#include "launcher/compute/strait_main.h"
