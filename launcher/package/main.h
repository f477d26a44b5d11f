#pragma once

// Installed as <strait/main.h>: strait as a program of your own, with parts linked in. Link
// strait::cli and strait::plugin.
#include "launcher/cli/strait_main.h"
