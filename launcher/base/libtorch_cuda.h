#pragma once

#include <string>

// The part of libtorch that uses GPUs, libtorch_cuda.so. No program links it, so that one build
// runs with a libtorch for CPUs and with one with CUDA.
namespace strait::base {

// Whether the loader would find it for this program. Loads nothing. Builds of one id may differ in
// this, and may be mixed in one run.
bool libtorch_has_cuda();

// Loads it if it is there, and it registers its devices. At the start of a program that uses
// libtorch; later calls only return the same result. Empty, or the loader's reason for refusing it.
const std::string& load_libtorch_cuda();

}  // namespace strait::base
