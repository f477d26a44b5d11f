# What is installed where. `cmake --install build/release --prefix DIR` installs all but the component
# "libraries"; cpack.cmake and wheel/CMakeLists.txt choose from these:
#   program    programs, the scripts that start them, recipes
#   plugin     headers and the package, so that find_package(strait) finds strait::plugin
#   libraries  the libraries of this system that programs need, next to them
#   (none)     each room as a library, for programs of one's own
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/strait)
set(header_dir ${CMAKE_INSTALL_INCLUDEDIR}/strait)
set(program_dir ${CMAKE_INSTALL_LIBEXECDIR}/strait)

get_property(rooms GLOBAL PROPERTY STRAIT_ROOMS)
install(TARGETS ${rooms} EXPORT strait
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        FILE_SET HEADERS DESTINATION ${header_dir} COMPONENT plugin)
install(EXPORT strait NAMESPACE strait:: FILE straitTargets.cmake DESTINATION ${package_dir})

file(GLOB framework_headers RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/framework/*.h)
install(FILES ${framework_headers} DESTINATION ${header_dir}/framework COMPONENT plugin)
# <strait/partition.h>, <strait/plugin.h> and <strait/main.h>; they include the others by their full names.
install(FILES ${CMAKE_CURRENT_LIST_DIR}/partition.h ${CMAKE_CURRENT_LIST_DIR}/plugin.h
              ${CMAKE_CURRENT_LIST_DIR}/main.h
        DESTINATION ${header_dir} COMPONENT plugin)
install(TARGETS strait_plugin_interface EXPORT strait_plugin
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${header_dir})
install(EXPORT strait_plugin NAMESPACE strait:: FILE straitPlugin.cmake DESTINATION ${package_dir}
        COMPONENT plugin)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/straitConfig.cmake.in
                              ${CMAKE_BINARY_DIR}/straitConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/straitConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/torch.cmake ${CMAKE_BINARY_DIR}/straitConfig.cmake
              ${CMAKE_BINARY_DIR}/straitConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT plugin)

if(NOT STRAIT_TORCH_ROOMS)
  return()
endif()
set(programs strait strait-torch strait-stage strait-stage-torch)
get_filename_component(torch_libraries "${Torch_DIR}/../../../lib" ABSOLUTE)
# What is installed finds its libraries next to it, and libtorch where the wheel of torch has it, seen
# from strait/bin of ours; start.sh.in finds any other. Libraries of libraries are found, too: that is
# what RPATH does and RUNPATH does not. In the build, libtorch is where Torch_DIR says. CMake would end
# a list that it changes itself with an empty entry, which is the current directory.
set(installed_rpath "$ORIGIN:$ORIGIN/../../torch/lib")
set_target_properties(${programs} PROPERTIES BUILD_WITH_INSTALL_RPATH ON
                      INSTALL_RPATH "${torch_libraries}:${installed_rpath}")
foreach(program ${programs})
  target_link_options(${program} PRIVATE LINKER:--disable-new-dtags)
endforeach()
install(TARGETS ${programs} RUNTIME_DEPENDENCY_SET libraries
        RUNTIME DESTINATION ${program_dir} COMPONENT program)
foreach(program ${programs})
  install(CODE "file(RPATH_CHANGE FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${program_dir}/${program}\"
    OLD_RPATH [[${torch_libraries}:${installed_rpath}]] NEW_RPATH [[${installed_rpath}]])" COMPONENT program)
endforeach()
install(RUNTIME_DEPENDENCY_SET libraries
        PRE_EXCLUDE_REGEXES "^lib(torch|c10)" "^lib(stdc\\+\\+|gcc_s|c|m|dl|rt|pthread|resolv)\\.so" "^ld-linux"
        LIBRARY DESTINATION ${program_dir} COMPONENT libraries EXCLUDE_FROM_ALL)
file(GLOB workers ${CMAKE_SOURCE_DIR}/launcher/*/strait-*.py)
install(PROGRAMS ${workers} DESTINATION ${program_dir} COMPONENT program)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/strait COMPONENT program
        PATTERN plugins EXCLUDE PATTERN __pycache__ EXCLUDE)
# The manual page is what the program says of itself.
install(CODE "file(MAKE_DIRECTORY \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1\")
  execute_process(COMMAND [[$<TARGET_FILE:strait>]] help --man COMMAND_ERROR_IS_FATAL ANY
    OUTPUT_FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1/strait.1\")" COMPONENT program)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program
        RENAME copyright)

# The torch that this build is for, without its last number: that never changes what programs link.
file(STRINGS ${CMAKE_SOURCE_DIR}/strait STRAIT_TORCH REGEX "^torch_pin=torch==")
string(REGEX REPLACE "^.*==([0-9]+\\.[0-9]+)\\..*$" "\\1" STRAIT_TORCH "${STRAIT_TORCH}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/start.sh.in ${CMAKE_BINARY_DIR}/start.sh @ONLY)
foreach(program strait strait-stage)
  install(PROGRAMS ${CMAKE_BINARY_DIR}/start.sh DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program
          RENAME ${program})
endforeach()
# What stays on this machine finds the libtorch of the build.
file(CONFIGURE OUTPUT torch_dir CONTENT "${Torch_DIR}\n")
install(FILES ${CMAKE_BINARY_DIR}/torch_dir DESTINATION ${CMAKE_INSTALL_DATADIR}/strait)

include(${CMAKE_CURRENT_LIST_DIR}/cpack.cmake)
