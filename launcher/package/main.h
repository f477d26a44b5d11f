#pragma once

// Installed as <strait/main.h>: strait as a program of your own, with parts linked in. Link
// strait::launcher and strait::plugin.
#include "launcher/strait_main.h"
