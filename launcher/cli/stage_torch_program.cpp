#include "launcher/cli/strait_main.h"

int main(int argc, char** argv) { return strait::strait_stage_main(argc, argv, nullptr); }
