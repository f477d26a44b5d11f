#pragma once

// Installed as <strait/plugin.h>: STRAIT_PLUGIN and what it is given. The header of the part that
// is offered comes beside it; launcher/plugin/plugin.h names it.
#include "launcher/plugin/plugin.h"
