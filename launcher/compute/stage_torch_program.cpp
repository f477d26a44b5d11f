#include "launcher/compute/strait_main.h"

int main(int argc, char** argv) {
  strait::end_program(strait::strait_stage_main(argc, argv, nullptr));
}
