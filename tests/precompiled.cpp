// SPDX-License-Identifier: Apache-2.0
//
// Nothing but the headers that every test includes, precompiled with this file for all of them (CMakeLists.txt).
