# libtorch as an interface target, from the folder that Torch_DIR names. Without its CUDA part, which
# programs load when they start (launcher/base/nvidia_driver.h). Not through torch's own CMake package:
# that one refuses a wheel with CUDA where there is no CUDA toolkit.
function(strait_add_torch target imported)
  get_filename_component(torch "${Torch_DIR}/../../.." ABSOLUTE)
  add_library(${target} INTERFACE ${imported})
  # Behind the system's own folders: the wheel carries an fmt of another version than the one we link.
  foreach(folder include include/torch/csrc/api/include)
    set_property(TARGET ${target} APPEND PROPERTY
                 INTERFACE_COMPILE_OPTIONS "SHELL:-idirafter \"${torch}/${folder}\"")
  endforeach()
  foreach(name torch_cpu c10)
    # Not by find_library, which keeps what it has found when Torch_DIR changes.
    set(library ${torch}/lib/lib${name}.so)
    if(NOT EXISTS ${library})
      message(FATAL_ERROR "no lib${name} in ${torch}/lib; set Torch_DIR to the folder that holds "
                          "TorchConfig.cmake, inside a whole libtorch")
    endif()
    set_property(TARGET ${target} APPEND PROPERTY
                 INTERFACE_LINK_LIBRARIES $<LINK_ONLY:${library}>)
  endforeach()
endfunction()
