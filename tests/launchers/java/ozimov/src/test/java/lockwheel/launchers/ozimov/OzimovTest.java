// Runs the contract on the fork of ozimov.

package lockwheel.launchers.ozimov;

import lockwheel.launchers.OriginalApiContract;

class OzimovTest extends OriginalApiContract {
    @Override
    protected String vendor() {
        return "ozimov";
    }
}
